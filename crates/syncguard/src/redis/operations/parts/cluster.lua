-- Whether the server is a node of a cluster: the last argument says so, and is taken away.
local in_cluster = ARGV[#ARGV] == 'cluster' and table.remove(ARGV)
