// Package release checks that the modules that are published work for others.
package release
