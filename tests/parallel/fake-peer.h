/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What tests say to the driver of fake-peer-driver.c, and learn of it. */
#ifndef FAKE_PEER_H
#define FAKE_PEER_H

/* Exported as fake_peer. */
struct fake_peer {
    int apart;   /* this device and others do not reach each other; -1: none */
    int refuses; /* memory of other processes is not mapped */
    int opened;  /* memory of other processes that is mapped now */
    int enabled; /* calls of cuCtxEnablePeerAccess */
};

#endif
