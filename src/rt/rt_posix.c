/* rt_posix.c */
