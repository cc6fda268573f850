/* store_oop.c */
