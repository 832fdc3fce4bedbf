// Package agent carries steering between the C-PS and its forwarders over one gRPC bidirectional stream each (CP
// sections 7 and 12): service requests and binding statuses up, provisions, installs, drains, removals and refusals
// down. Client is the end of the forwarder's agent, Server that of the C-PS. No message carries a user's packet.
package agent
