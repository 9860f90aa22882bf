package connect

// ListenFirst is listenFirst.
var ListenFirst = listenFirst
