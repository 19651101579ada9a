//! Checks the links to the skills of projects. The check of skills verifies the skills themselves.

use super::{Doctor, DoctorFinding};
use crate::agents;
use crate::disk;
use crate::installed::project_skills::{self, ProjectError};
use crate::vault::VaultError;

impl Doctor<'_> {
    pub(super) fn check_projects(&mut self) -> Result<(), VaultError> {
        if self.input.clean {
            match agents::forget_missing(self.vault) {
                Ok(forgotten) => self.report.cleaned.extend(forgotten),
                Err(ProjectError::Other(error)) => return Err(error),
                // Other errors concern the folder of an existing project, which is not opened here.
                Err(_) => {}
            }
        }
        for project in project_skills::list_projects(self.vault)? {
            let path = project.path().to_owned();
            if !disk::is_folder(&path) {
                self.add_finding(DoctorFinding::ProjectMissing(path));
                continue;
            }
            match agents::wrong_links(self.vault, &project) {
                Ok(wrong) if wrong.is_empty() => {}
                Ok(wrong) => self.add_finding(DoctorFinding::ProjectLinks {
                    project: path,
                    wrong,
                }),
                Err(ProjectError::Other(error)) => return Err(error),
                Err(_) => self.add_finding(DoctorFinding::ProjectLinks {
                    wrong: vec![path.clone()],
                    project: path,
                }),
            }
        }
        Ok(())
    }
}
