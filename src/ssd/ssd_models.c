/* ssd_models.c */
