// Package outsider checks that the modules that are published work for others.
package outsider
