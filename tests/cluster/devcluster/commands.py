import argparse, sys
from . import tools
from .say import Problem, say
def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("command"); parser.add_argument("name", nargs="*")
    o = parser.parse_args(arguments)
    try:
        for n in o.name: print(tools.path(n))
    except Problem as p:
        say(str(p)); return 1
    return 0
