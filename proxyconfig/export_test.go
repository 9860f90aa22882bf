package proxyconfig

var (
	SystemdQuote = systemdQuote
	ShellQuote   = shellQuote
)
