/* wal_scan.c */
