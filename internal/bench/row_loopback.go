package main

// loopbackRow has nothing between the client and the target: what the machine
// and the two ends of the measurement can do.
var loopbackRow = row{name: "loopback", about: "the client dials the target"}
