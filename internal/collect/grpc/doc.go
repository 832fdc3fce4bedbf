// Package grpc carries the reports of service contact instances to their C-SMA over a gRPC bidirectional stream (C-SMA
// section 4.1): Client is the end of the SCI agent, Server that of the C-SMA.
//
// The channel is mutual TLS, and the name in the agent's certificate is who a report is from; which instances and
// services it may report on, the C-SMA's core decides. Reports beyond an agent's rate are refused before anything else looks
// at them.
package grpc
