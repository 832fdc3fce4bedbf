// Package v1alpha1 converts between the vocabulary of package cats and the messages of margay.v1alpha1.
//
// Encode functions take values that the caller vouches for. Decode functions take what came from the network: every
// identifier, address, port, enumeration, registered range and length is checked, an error names the field
// ("records[3].metrics.reputation: …") and wraps a cats.Reason, and nothing of a message with an error is returned.
// Durations have a resolution of one millisecond and are rounded down. Messages share no memory with the values that
// they were made from, so that a core can go on while a message is sent.
package v1alpha1

// Limits on what one message may carry.
const (
	// MaxRows bounds the rows of one update and the rules of one Provision.
	MaxRows = 16384
	// MaxServices bounds the services of one report, and the attachments and shards of one hello.
	MaxServices = 4096
	// MaxBatch bounds each list of a steering or path batch.
	MaxBatch = 1024
	// MaxSegments bounds the segments or labels of one path.
	MaxSegments = 16
	// MaxNodes bounds the nodes that describe one path.
	MaxNodes = 64
	// MaxExtensions bounds the extension metrics of one record.
	MaxExtensions = 16
	// MaxDetail bounds a text for a person, in octets.
	MaxDetail = 1024
	// MaxPolicyDocument bounds a policy document, in octets.
	MaxPolicyDocument = 65536
	// MaxHelloBindings bounds the halves of bindings of one hello over all of its parts.
	MaxHelloBindings = 1 << 22
	// MaxMessageOctets is the size of message that a transport has to accept: no message within the limits above is
	// larger.
	MaxMessageOctets = 32 << 20
	// MaxReportOctets is the same for an SCI report alone.
	MaxReportOctets = 8 << 20
)
