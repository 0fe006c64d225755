"""One column whose values no declared domain lists: which values are released is part of the release."""
