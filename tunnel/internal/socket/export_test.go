package socket

var UnsentLimitFor = unsentLimitFor
