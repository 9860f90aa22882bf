package relay

import "time"

var CopyConn = copyConn

func init() { goneEvery = time.Millisecond }
