"""Commands about consumer groups and offsets: groups, translate, offset files."""
