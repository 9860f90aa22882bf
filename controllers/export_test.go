package controllers

// For the tests of what a cache keeps.
var TrimClusters = trimClusters
