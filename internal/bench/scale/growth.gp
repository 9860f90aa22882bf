# gnuplot growth.gp draws growth.svg from growth.txt. growth-before.txt is of a version that
# asked all replicas at each dial to a cluster without an agent, and told agents of
# all servers.
set terminal svg size 880,620 font "sans-serif,13" background "white"
set output "growth.svg"
set multiplot layout 2,2 spacing 0.08,0.16 margins 0.09,0.97,0.11,0.93
set key off
set grid ytics lc rgb "#dddddd"
set border 3
set tics nomirror out
set xrange [0:32]
set xtics (3, 10, 30)
set yrange [0:*]
set style line 1 lc rgb "#0060b0" lw 2 pt 7 ps 0.7
set style line 2 lc rgb "#b05000" lw 2 pt 5 ps 0.6 dt 2
now = "growth.txt"
before = "growth-before.txt"
draw(n) = sprintf("plot now using 1:%d with linespoints ls 1, before using 1:%d with linespoints ls 2", n, n)
set title "idle: bytes a second and replica, to and from the others"
eval draw(2)
set label 1 "before" at 24,3000 right tc rgb "#b05000"
set label 2 "now" at 30,250 right tc rgb "#0060b0"
set title "a dial to a cluster without an agent: bytes between replicas"
eval draw(8)
unset label
set label 1 "before" at 24,45 right tc rgb "#b05000"
set label 2 "now" at 30,16 right tc rgb "#0060b0"
set title "a rolling restart of all: KiB that an agent reads"
set xlabel "replicas"
eval draw(9)
unset label
set title "memory of a replica: MiB of heap and stacks"
eval draw(4)
unset multiplot
