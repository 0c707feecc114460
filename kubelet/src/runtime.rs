//! The Runtime trait: the CRI calls we use.
