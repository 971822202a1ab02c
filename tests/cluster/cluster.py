#!/usr/bin/env python3
"""The dev cluster and the tools of the tests. See README.md beside this file, or `cluster.py --help`."""

import sys

if sys.version_info < (3, 11):
    sys.exit("cluster: Python 3.11 or newer is needed, this is " + sys.version.split()[0])

from devcluster.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
