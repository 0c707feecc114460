//! The server over loopback TLS, with pods in memory and the scripted runtime.
