"""From a release to rows and cells: fit, draw, decode, write. Post-processing: free, and no raw table can be named here."""
