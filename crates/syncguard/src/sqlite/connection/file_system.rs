//! What kind of file system a folder is on.
//!
//! On a network file system, processes on other machines do not see SQLite's shared memory and often not the file
//! locks either, so they would get the same lock.

/// The name of the network file system that a folder (a path without links) is on, if it is on one.
///
/// A FUSE file system may have a network behind it. Only those that are known to have one are reported.
pub(super) use kind::network_file_system;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod kind {
    use std::io;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    pub(in super::super) fn network_file_system(folder: &Path) -> io::Result<Option<String>> {
        // The type of this field differs between architectures; the numbers have 32 bits.
        let number = rustix::fs::statfs(folder)?.f_type as u32;
        if number != FUSE {
            return Ok(name_of(number).map(str::to_owned));
        }
        let device = std::fs::metadata(folder)?.dev();
        // Without /proc, nothing more can be found out.
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(name_of_fuse(&String::from_utf8_lossy(&mounts), device))
    }

    const FUSE: u32 = 0x6573_5546;

    /// The names by magic number, from the kernel's `linux/magic.h` and, for others, from their own sources.
    fn name_of(number: u32) -> Option<&'static str> {
        Some(match number {
            0x6969 => "NFS",
            0x517B => "SMB",
            0xFF53_4D42 => "CIFS",
            0xFE53_4D42 => "SMB2",
            0x564C => "NCP",
            0x5346_414F | 0x6B41_4653 => "AFS",
            0x7375_7245 => "Coda",
            0x0102_1997 => "9P",
            0x00C3_6400 => "Ceph",
            0x0BD0_0BD0 => "Lustre",
            0x4750_4653 => "GPFS",
            0x0116_1970 => "GFS2",
            0x7461_636F => "OCFS2",
            0x1983_0326 => "BeeGFS",
            0xAAD7_AAEA => "PanFS",
            0x2003_0528 => "OrangeFS",
            0x786F_4256 => "a VirtualBox shared folder",
            0xBACB_ACBC => "a VMware shared folder",
            0x7C7C_6673 => "a Parallels shared folder",
            _ => return None,
        })
    }

    /// Those in user space that have a network behind them.
    const NETWORK_FUSE: &str = "blobfuse blobfuse2 ceph ceph-fuse curlftpfs davfs fuse_dfs gcsfuse glusterfs goofys \
        gvfsd-fuse juicefs lizardfs mfs moosefs mount-s3 mountpoint-s3 rclone s3fs saunafs seaweedfs smbnetfs sshfs weed";

    /// The name of the FUSE file system on a device, from `/proc/self/mountinfo`, if it is a known network file system.
    fn name_of_fuse(mounts: &str, (major, minor): (u32, u32)) -> Option<String> {
        let device = format!("{major}:{minor}");
        let line = mounts
            .lines()
            .find(|line| line.split(' ').nth(2) == Some(&device))?;
        let (_, of_the_file_system) = line.split_once(" - ")?;
        let name = of_the_file_system
            .split(' ')
            .next()?
            .strip_prefix("fuse.")?;
        NETWORK_FUSE
            .split(' ')
            .any(|known| known == name)
            .then(|| format!("FUSE: {name}"))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn network_file_systems_are_known_by_their_numbers() {
            for (number, name) in [
                (0x6969, Some("NFS")),
                (0x517B, Some("SMB")),
                (0xFF53_4D42, Some("CIFS")),
                (0xFE53_4D42, Some("SMB2")),
                (0x5346_414F, Some("AFS")),
                (0x6B41_4653, Some("AFS")),
                (0x0102_1997, Some("9P")),
                (0x00C3_6400, Some("Ceph")),
                (0x0BD0_0BD0, Some("Lustre")),
                (0x4750_4653, Some("GPFS")),
                // ext4, XFS, btrfs, tmpfs, overlayfs, ZFS
                (0xEF53, None),
                (0x5846_5342, None),
                (0x9123_683E, None),
                (0x0102_1994, None),
                (0x794C_7630, None),
                (0x2FC1_2FC1, None),
            ] {
                assert_eq!(name_of(number), name, "{number:#x}");
            }
        }

        #[test]
        fn network_file_systems_in_user_space_are_known_by_their_names() {
            let mounts = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:35 / /home/a/remote rw,nosuid shared:9 - fuse.sshfs host:/a\\040b rw,user_id=0
41 22 0:36 / /mnt/usb rw - fuseblk /dev/sdb1 rw
42 22 0:37 / /home/b rw - fuse.encfs encfs rw
";
            let name = |minor| name_of_fuse(mounts, (0, minor));
            assert_eq!(name(35).as_deref(), Some("FUSE: sshfs"));
            assert_eq!(name(36), None);
            assert_eq!(name(37), None);
            assert_eq!(name(3), None);
            assert_eq!(name_of_fuse("", (0, 35)), None);
        }

        #[test]
        fn the_file_system_of_a_folder_is_found() {
            let network = network_file_system(&std::env::temp_dir()).unwrap();
            assert_eq!(network, None);
            let missing = network_file_system(Path::new("/does/not/exist")).unwrap_err();
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        }
    }
}

#[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
mod kind {
    use std::io;
    use std::path::Path;

    pub(in super::super) fn network_file_system(folder: &Path) -> io::Result<Option<String>> {
        let status = rustix::fs::statfs(folder)?;
        let name: String = status
            .f_fstypename
            .iter()
            .map(|byte| char::from(*byte as u8))
            .take_while(|char| *char != '\0')
            .collect();
        let network = ["afpfs", "cifs", "ftp", "nfs", "smbfs", "webdav"];
        Ok(network.contains(&name.as_str()).then_some(name))
    }
}

#[cfg(windows)]
mod kind {
    use std::io;
    use std::path::{Component, Path, Prefix};

    /// Once links are resolved, a path on a mapped network drive begins with the share.
    pub(in super::super) fn network_file_system(folder: &Path) -> io::Result<Option<String>> {
        let is_share = match folder.components().next() {
            Some(Component::Prefix(prefix)) => {
                matches!(prefix.kind(), Prefix::UNC(..) | Prefix::VerbatimUNC(..))
            }
            _ => false,
        };
        Ok(is_share.then(|| "a network share".to_owned()))
    }
}

#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_vendor = "apple",
    target_os = "freebsd",
    windows
)))]
mod kind {
    use std::io;
    use std::path::Path;

    /// On other systems this cannot be found out.
    pub(in super::super) fn network_file_system(_: &Path) -> io::Result<Option<String>> {
        Ok(None)
    }
}
