/* dev_sim.c */
