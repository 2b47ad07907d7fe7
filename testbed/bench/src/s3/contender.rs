//! The contenders: their names, what each can do, and what each has on the disk when it answers a PUT.

use super::options::{Job, Options};
use crate::failure::Failure;

/// An object server, or one way to run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contender {
    Dcs,
    DcsNone,
    DcsVerify,
    Versitygw,
    Minio,
    Rclone,
    Nginx,
    NginxPreload,
    NginxMd5,
    NginxMd5Threads,
    NginxPerl,
}

/// What is told of one.
pub struct Known {
    pub contender: Contender,
    pub name: &'static str,
    pub what: &'static str,
    /// What is on the disk when a PUT is answered.
    pub durability: &'static str,
}

pub const CONTENDERS: &[Known] = &[
    Known {
        contender: Contender::Dcs,
        name: "dcs",
        what: "dcs serve as it is",
        durability: "all synced (--durability full)",
    },
    Known {
        contender: Contender::DcsNone,
        name: "dcs-none",
        what: "dcs serve that leaves writing back to the kernel, as versitygw and rclone do",
        durability: "nothing synced (--durability none)",
    },
    Known {
        contender: Contender::DcsVerify,
        name: "dcs-verify",
        what: "dcs serve that checks each object's digest while it sends it",
        durability: "all synced (--durability full)",
    },
    Known {
        contender: Contender::Versitygw,
        name: "versitygw",
        what: "Versity S3 Gateway over a folder (posix), as it is",
        durability: "nothing synced (it never calls fsync)",
    },
    Known {
        contender: Contender::Minio,
        name: "minio",
        what: "MinIO over one folder, as it is",
        // CreateFile and writeAllInternal of cmd/xl-storage.go; O_DIRECT is off where there is one drive.
        durability: "data and metadata synced (fdatasync), not their names",
    },
    Known {
        contender: Contender::Rclone,
        name: "rclone",
        what: "rclone serve s3 over a folder, as it is",
        durability: "nothing synced",
    },
    Known {
        contender: Contender::Nginx,
        name: "nginx",
        what: "nginx with sendfile: GET of files, unsigned, no S3: the floor",
        durability: "-",
    },
    Known {
        contender: Contender::NginxPreload,
        name: "nginx-preload",
        what: "the same nginx by dcs run, without a rule; only where it is named",
        durability: "-",
    },
    Known {
        contender: Contender::NginxMd5,
        name: "nginx-md5",
        what: "the same nginx by dcs run, which logs the MD5 of all that is sent; only where it is named",
        durability: "-",
    },
    Known {
        contender: Contender::NginxMd5Threads,
        name: "nginx-md5-threads",
        what: "the same with nginx's thread pool (aio threads), so that many answers are sent at once; only where it is named",
        durability: "-",
    },
    Known {
        contender: Contender::NginxPerl,
        name: "nginx-perl",
        what: "nginx with a Perl handler that reads, hashes and logs a file, and sends it; only where it is named",
        durability: "-",
    },
];

impl Contender {
    pub fn parse(name: &str) -> Result<Contender, Failure> {
        let found = CONTENDERS.iter().find(|known| known.name == name);
        found.map(|known| known.contender).ok_or_else(|| {
            let names: Vec<_> = CONTENDERS.iter().map(|known| known.name).collect();
            Failure::usage(format!("there is no server {name:?} to compare with"))
                .advise(format!("one of: {}", names.join(", ")))
        })
    }

    pub fn known(self) -> &'static Known {
        // Each has its entry; a test sees to it.
        CONTENDERS.iter().find(|known| known.contender == self).unwrap_or(&CONTENDERS[0])
    }

    pub fn name(self) -> &'static str {
        self.known().name
    }

    /// Whether it can do this job, and whether that differs from what another contender does.
    pub fn can(self, job: Job) -> bool {
        match self {
            Contender::DcsVerify => job == Job::Get,
            Contender::DcsNone => job == Job::Put,
            _ => self.is_s3() || job == Job::Get,
        }
    }

    /// Whether its requests are signed, and its ETags are MD5s.
    pub fn is_s3(self) -> bool {
        self != Contender::Nginx && !self.is_named_only()
    }

    /// Nothing to compare object servers with: for `dcs bench apps`, and whoever names it.
    fn is_named_only(self) -> bool {
        matches!(
            self,
            Contender::NginxPreload | Contender::NginxMd5 | Contender::NginxMd5Threads | Contender::NginxPerl
        )
    }

    /// Those that were picked, or all.
    pub fn picked(options: &Options) -> Result<Vec<Contender>, Failure> {
        if options.contenders.is_empty() {
            let all = CONTENDERS.iter().map(|known| known.contender);
            return Ok(all.filter(|one| !one.is_named_only()).collect());
        }
        let mut picked = Vec::new();
        for name in &options.contenders {
            let contender = Contender::parse(name)?;
            if !picked.contains(&contender) {
                picked.push(contender);
            }
        }
        Ok(picked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_entry_and_name() {
        for known in CONTENDERS {
            assert_eq!(known.contender.known().name, known.name);
            assert_eq!(Contender::parse(known.name).unwrap(), known.contender);
            assert!(known.contender.can(Job::Get) || known.contender.can(Job::Put));
        }
        assert!(Contender::parse("apache").unwrap_err().advice.unwrap().contains("versitygw"));
    }
}
