package relay

var CopyConn = copyConn
