/* dev_file.c */
