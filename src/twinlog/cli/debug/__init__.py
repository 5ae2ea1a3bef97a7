"""`twinlog debug bundle`: what a bug report needs, in one file without secrets."""
