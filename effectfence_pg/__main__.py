"""``python -m effectfence_pg`` is ``effectfence-pg``."""

from effectfence_pg.cli import main

if __name__ == "__main__":
    main()
