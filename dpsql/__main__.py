"""`python -m dpsql`: the command `dpsql`."""

import sys

from dpsql.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
