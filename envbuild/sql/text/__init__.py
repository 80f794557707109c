"""SQL as text: tokens, statements, masks. A lexer's world, no parser."""
