"""Commands about consumer groups and offsets: groups, translate, and files of offsets."""
