//! Contenders: their names, the jobs that each can do, and what each has on the disk when it answers a PUT.

use super::options::{Job, Options};
use crate::failure::Failure;
use crate::harness::contender::Named;

/// An object server, or one configuration of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contender {
    Dcs,
    DcsNone,
    DcsVerify,
    DcsFiles,
    Versitygw,
    Minio,
    Rclone,
    Nginx,
    NginxPreload,
    NginxMd5,
    NginxMd5Threads,
    NginxPerl,
}

impl Named for Contender {
    const ALL: &'static [(Contender, &'static str, &'static str)] = &[
        (Contender::Dcs, "dcs", "dcs serve with its defaults"),
        (
            Contender::DcsNone,
            "dcs-none",
            "dcs serve that leaves writing back to the kernel, as versitygw and rclone do",
        ),
        (Contender::DcsVerify, "dcs-verify", "dcs serve that checks each object's digest while it sends it"),
        (
            Contender::DcsFiles,
            "dcs-files",
            "dcs serve with a file for each object, however small (--pack 0); only if named",
        ),
        (Contender::Versitygw, "versitygw", "Versity S3 Gateway over a folder (posix), with its defaults"),
        (Contender::Minio, "minio", "MinIO over one folder, with its defaults"),
        (Contender::Rclone, "rclone", "rclone serve s3 over a folder, with its defaults"),
        (Contender::Nginx, "nginx", "nginx with sendfile: GET of files, unsigned, no S3: the floor"),
        (
            Contender::NginxPreload,
            "nginx-preload",
            "the same nginx by dcs run, without a rule; only if named",
        ),
        (
            Contender::NginxMd5,
            "nginx-md5",
            "the same nginx by dcs run, which logs the MD5 of all that is sent; only if named",
        ),
        (
            Contender::NginxMd5Threads,
            "nginx-md5-threads",
            "the same with nginx's thread pool (aio threads), so that many answers are sent at once; only if named",
        ),
        (
            Contender::NginxPerl,
            "nginx-perl",
            "nginx with a Perl handler that reads, hashes and logs a file, and sends it; only if named",
        ),
    ];
}

impl Contender {
    /// Returns the state of the disk when a PUT is answered.
    pub fn durability(self) -> &'static str {
        match self {
            Contender::Dcs | Contender::DcsVerify | Contender::DcsFiles => "all synced (--durability full)",
            Contender::DcsNone => "nothing synced (--durability none)",
            Contender::Versitygw => "nothing synced (it never calls fsync)",
            // CreateFile and writeAllInternal of cmd/xl-storage.go; O_DIRECT is off where there is one drive.
            Contender::Minio => "data and metadata synced (fdatasync), not their names",
            Contender::Rclone => "nothing synced",
            _ => "-",
        }
    }

    /// Returns true if the contender can do this job, and does it differently from other contenders.
    pub fn can(self, job: Job) -> bool {
        match self {
            Contender::DcsVerify => job == Job::Get,
            Contender::DcsNone => job == Job::Put,
            _ => self.is_s3() || job == Job::Get,
        }
    }

    /// Returns true if its requests are signed and its ETags are MD5s.
    pub fn is_s3(self) -> bool {
        self == Contender::DcsFiles || (self != Contender::Nginx && !self.is_named_only())
    }

    /// Returns true if it runs only when named: `dcs bench apps` uses these, and they are not object servers to compare.
    fn is_named_only(self) -> bool {
        matches!(
            self,
            Contender::DcsFiles
                | Contender::NginxPreload
                | Contender::NginxMd5
                | Contender::NginxMd5Threads
                | Contender::NginxPerl
        )
    }

    /// Returns the contenders that were picked, or all.
    pub fn wanted(options: &Options) -> Result<Vec<Contender>, Failure> {
        match options.contenders.is_empty() {
            true => {
                Ok(Contender::ALL.iter().map(|(one, ..)| *one).filter(|one| !one.is_named_only()).collect())
            }
            false => Contender::picked(&options.contenders),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_entry_and_name() {
        for (contender, name, _) in Contender::ALL {
            assert_eq!(Contender::parse(name).unwrap(), *contender);
            assert!(contender.can(Job::Get) || contender.can(Job::Put));
        }
        assert!(Contender::parse("apache").unwrap_err().advice.unwrap().contains("versitygw"));
    }
}
