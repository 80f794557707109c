"""Names of the files in a corpus folder, for those who need no Parquet to know them."""

INDEX_FILE = "corpus.json"
"""Written last: its presence means that the corpus is whole."""
INDEX_FORMAT = "envbuild.corpus/1"
PARTS_FOLDER = ".parts"
"""What a materialize that has not ended keeps in the corpus folder."""
SQLITE_ENDINGS = (".sqlite", ".sqlite3", ".db")
