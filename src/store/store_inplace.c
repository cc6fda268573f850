/* store_inplace.c */
