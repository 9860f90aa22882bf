package noproxy

// Cloud is where a cluster runs: what must be reached directly there.
type Cloud string

const (
	NoCloud   Cloud = ""
	AWS       Cloud = "aws"
	GCP       Cloud = "gcp"
	Azure     Cloud = "azure"
	OpenStack Cloud = "openstack"
)

// metadataAddr is the metadata service of every cloud here.
const metadataAddr = "169.254.169.254"

// known reports whether c is one of the constants.
func (c Cloud) known() bool {
	switch c {
	case NoCloud, AWS, GCP, Azure, OpenStack:
		return true
	}
	return false
}

// items returns the addresses and names of the cloud's own services that a node
// or a pod asks. They answer on the node's link or on the host below it, so a
// proxy cannot reach them on its behalf.
func (c Cloud) items(region string) []string {
	switch c {
	case AWS:
		// The last two are the agent of EKS Pod Identity.
		return []string{metadataAddr, "fd00:ec2::254", awsNames(region), "169.254.170.23", "fd00:ec2::23"}
	case GCP:
		return []string{metadataAddr, "metadata", "metadata.google.internal", "metadata.google.internal."}
	case Azure:
		return []string{metadataAddr, "168.63.129.16"} // the latter is DHCP, DNS and health probes
	case OpenStack:
		return []string{metadataAddr}
	}
	return nil
}

// awsNames covers the private names of instances in a region.
func awsNames(region string) string {
	if region == "us-east-1" {
		return ".ec2.internal"
	}
	return "." + region + ".compute.internal"
}
