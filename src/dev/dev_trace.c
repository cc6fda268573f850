/* dev_trace.c */
