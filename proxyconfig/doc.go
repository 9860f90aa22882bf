// Package proxyconfig renders one proxy configuration for everything that must
// carry it.
package proxyconfig
