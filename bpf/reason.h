/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Why a packet is dropped: the numbers of cats.Reason, of which these are the ones that a program can give. A test
 * compares them with the Go list by name. */
#pragma once

enum reason {
	REASON_UNAUTHORIZED = 7,
	REASON_NO_PATH = 9,
	REASON_NO_BINDING = 15,
	REASON_UNKNOWN_SID = 16,
	REASON_BAD_CONTEXT = 17,
	REASON_TTL_EXCEEDED = 19,
	REASON_TOO_BIG = 20,
	REASON_BAD_PACKET = 21,
	REASON_HELD_FULL = 24,
	REASON_LIMIT = 64, /* one above any number that user space may record for a held-down key */
};
