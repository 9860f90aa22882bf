package cli

var CgroupLimits = &cgroupLimits
