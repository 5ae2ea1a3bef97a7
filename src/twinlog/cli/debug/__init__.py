"""`twinlog debug bundle`: collects what a bug report needs in one file, without secrets."""
