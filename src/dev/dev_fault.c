/* dev_fault.c */
