# shellcheck shell=bash
# Makes the machine's disk: a Debian of this machine's own release, with its kernel, systemd and containerd. Sourced by
# hack/vm after lib.sh, never run.
# shellcheck source=../lib.sh disable=SC2153,SC2154

# What a node has before we come, what the scenarios look with, and nothing more.
GUEST_PACKAGES=systemd,systemd-sysv,dbus,udev,kmod,procps,iproute2,nftables,openssh-server,containerd,ca-certificates,curl
IMAGE_BYTES=4G

image_key() { cat "$ROOT"/hack/guest/* | sha256sum | cut -c1-16; }

# make_root DIRECTORY: a Debian with its kernel, ready to boot.
make_root() {
    local root=$1 source suite mirror kernel
    source=$(debian_source)
    mirror=${source% *} suite=${source#* }
    say "debootstrap $suite (some minutes)"
    mkdir -p "$VM/packages"
    debootstrap --cache-dir="$VM/packages" --variant=minbase --include="$GUEST_PACKAGES" "$suite" "$root" "$mirror" >"$DATA/log/debootstrap.log" 2>&1 ||
        die "debootstrap failed; see $DATA/log/debootstrap.log"
    # The kernel is unpacked, not installed: its maintainer scripts would build a large initramfs.
    kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
    download_packages "$VM/deb" "$kernel"
    # Beside the tree: unpacked over it, the package's /lib would take the place of the link of that name.
    dpkg-deb -x "$VM/deb"/linux-image-*.deb "$VM/deb/kernel"
    mkdir -p "$root/usr/lib/modules"
    cp -a "$(find "$VM/deb/kernel" -path '*lib/modules/*' -prune)" "$root/usr/lib/modules/"
    cp "$VM/deb/kernel/boot/vmlinuz-${kernel#linux-image-}" "$VM/vmlinuz"
    rm -rf "$VM/deb"
    depmod -b "$root" "${kernel#linux-image-}"
    configure_root "$root"
    make_initramfs "$root" "${kernel#linux-image-}"
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
}

configure_root() {
    local root=$1
    echo vm-node >"$root/etc/hostname"
    printf '127.0.0.1 localhost\n10.0.2.15 vm-node\n' >"$root/etc/hosts"
    echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"
    echo '/dev/vda / ext4 defaults 0 1' >"$root/etc/fstab"
    # No part of a node: nothing else waits for it.
    echo 'LABEL=payload /mnt ext4 ro,nofail 0 0' >>"$root/etc/fstab"
    # Its own identity, so that systemd does not take every boot for the first.
    systemd-machine-id-setup --root="$root" >/dev/null 2>&1 || tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
    install -D -m 644 "$ROOT/hack/guest/uplink.network" "$root/etc/systemd/network/uplink.network"
    # A login begins its own server: none takes from a boot nobody has logged in to.
    chroot "$root" systemctl disable -q ssh
    chroot "$root" systemctl enable -q systemd-networkd ssh.socket containerd
    chroot "$root" systemctl mask -q apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
        systemd-networkd-wait-online.service getty@tty1.service e2scrub_reap.service systemd-update-utmp.service \
        systemd-update-utmp-runlevel.service modprobe@{configfs,dm_mod,drm,efi_pstore,fuse,loop}.service
    # Users and groups are as its packages want them.
    touch "$root/etc/.updated" "$root/var/.updated"
    [[ -f $VM/key ]] || ssh-keygen -q -t ed25519 -N '' -C skiff-vm -f "$VM/key"
    install -D -m 600 "$VM/key.pub" "$root/root/.ssh/authorized_keys"
}

# make_initramfs ROOT KERNEL: the modules that lead to the root disk, in the order they are needed.
make_initramfs() {
    local root=$1 kernel=$2 work=$VM/initramfs module path
    rm -rf "$work"
    mkdir -p "$work"/{bin,dev,proc,sys,root,modules}
    install -m 755 "$(command -v busybox)" "$work/bin/busybox"
    install -m 755 "$ROOT/hack/guest/init" "$work/init"
    for module in virtio_pci virtio_blk crc32c_generic ext4; do
        while IFS= read -r path; do
            [[ ! -e $work/modules/$(basename "${path%.xz}") ]] || continue
            basename "${path%.xz}" >>"$work/modules/order"
            case $path in
            *.xz) xz -dc "$path" >"$work/modules/$(basename "${path%.xz}")" ;;
            *) cp "$path" "$work/modules/" ;;
            esac
        done < <(modprobe -d "$root" -S "$kernel" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p')
    done
    (cd "$work" && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1) >"$VM/initrd"
    rm -rf "$work"
}

image() {
    [[ $(cat "$VM/key.image" 2>/dev/null) != "$(image_key)" ]] || return 0
    [[ $(uname -m) = x86_64 ]] || die "hack/vm knows only x86_64 machines"
    mkdir -p "$RUN" "$DATA/log"
    install_packages qemu-system-x86 debootstrap e2fsprogs cpio busybox-static kmod xz-utils openssh-client
    rm -rf "$VM/root" "$VM/key.image"
    # In a shell of its own: its trap must not take the place of the caller's, which ends the machine.
    (
        trap 'rm -rf "$VM/root" "$VM/deb" "$VM/initramfs"' EXIT
        make_root "$VM/root"
        say "making the disk"
        rm -f "$VM/disk"
        mkfs.ext4 -q -d "$VM/root" -L root "$VM/disk" "$IMAGE_BYTES"
        rm -rf "$VM/root"
        image_key >"$VM/key.image"
    )
}
