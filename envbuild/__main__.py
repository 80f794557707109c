"""`python -m envbuild`: the same as the console script."""

from envbuild.cli.app import main

if __name__ == "__main__":
    main()
