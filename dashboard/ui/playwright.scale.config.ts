import base from './playwright.config';

export default { ...base, testMatch: 'scale.ts', timeout: 600_000 };
