The same as for sm_80.
